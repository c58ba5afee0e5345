"""Everything under /accounts/. allauth's own pages are opened one by one: those to sign up and to manage e-mail
addresses do not exist, and a forgotten password is set by Django's views."""

from __future__ import annotations

from allauth.account import views as account_views
from django.contrib.auth import views as auth_views
from django.contrib.auth.decorators import login_not_required
from django.urls import include, path

from collections_app.access.mail import INVITATIONS
from ragd_site.sign_on import views

login = views.LoginView.as_view()
logout = login_not_required(views.LogoutView.as_view())

urlpatterns = [
    path("login/", login, name="account_login"),  # allauth's name of it
    path("login/", login, name="login"),
    path("logout/", logout, name="account_logout"),
    path("logout/", logout, name="logout"),
    path("inactive/", views.account_inactive, name="account_inactive"),
    path("link/<str:code>/<str:token>/", views.login_link, name="login_link"),
    path("oidc/login/", views.oidc_login, name="oidc_login"),
    path("oidc/callback/", views.oidc_callback, name="oidc_callback"),
    path("oidc/cancelled/", views.oidc_cancelled, name="socialaccount_login_cancelled"),
    path("password/", views.PasswordChangeView.as_view(), name="password_change"),
    path("password/done/", auth_views.PasswordChangeDoneView.as_view(), name="password_change_done"),
    path("forgotten/", views.ForgottenPasswordView.as_view(), name="password_reset"),
    path("forgotten/sent/", views.ForgottenSentView.as_view(), name="password_reset_done"),
    path("set/<uidb64>/<token>/", views.SetPasswordView.as_view(), name="password_reset_confirm"),
    path("invitation/<uidb64>/<token>/", views.SetPasswordView.as_view(links=INVITATIONS), name="invitation"),
    path("reauthenticate/", account_views.reauthenticate, name="account_reauthenticate"),
    path("sessions/", views.sessions, name="sessions"),
    path("2fa/", include("allauth.mfa.urls")),
]
